"""Images in requests: base64 of any dialect to the image parts of messages. No address is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from camelid.images.decode import ImageFile, from_base64, from_data_uri
from camelid.server.faces.common import Body
from camelid.server.http.errors import ApiError
from camelid.server.service.service import Service

NO_RETRY = {"x-should-retry": "false"}


def check_takes_images(service: Service, param: str, kind: str = "image") -> None:
    """Raises ApiError 501 for a model without a vision tower, and for a server that logs what it answered."""
    if service.image_refusal:
        raise ApiError(501, service.image_refusal, param=param, code="no_media", headers=NO_RETRY)
    if service.host.running.tower is None:
        raise no_media(kind, param)


def no_media(kind: str, param: str) -> ApiError:
    """The error of an input that the model does not take."""
    message = f"{kind} input is not supported by this model"
    return ApiError(501, message, param=param, code="no_media", headers=NO_RETRY)


def image_part(file: ImageFile) -> Body:
    """A content part of the library's messages."""
    return {"type": "image", "image": file}


def of_data_uri(uri: object, place: str, service: Service) -> Body:
    """The part of a data URI. Raises ApiError 501 without a tower, RequestError for anything else."""
    check_takes_images(service, place.partition(".")[0])
    if not isinstance(uri, str):
        raise ApiError(400, f"{place} is no text, expected a data URI of an image", param=place)
    return image_part(from_data_uri(uri, place))


def of_base64(text: object, place: str, service: Service) -> Body:
    """The part of an image in base64. Raises as `of_data_uri`."""
    check_takes_images(service, place.partition(".")[0].partition("[")[0])
    if not isinstance(text, str):
        raise ApiError(400, f"{place} is no text, expected an image in base64", param=place)
    return image_part(from_base64(text, place))


def with_images(text: str, images: Sequence[object], place: str, service: Service) -> str | list[Body]:
    """A message's content of a text behind images in base64; the text alone without images."""
    if not images:
        return text
    parts = [of_base64(image, f"{place}[{i}]", service) for i, image in enumerate(images)]
    return [*parts, {"type": "text", "text": text}] if text else parts


def joined_contents(contents: Sequence[object]) -> str | list[Body]:
    """Contents as one: texts by line breaks, and parts in order if one content has parts."""
    if all(isinstance(content, str) for content in contents):
        return "\n".join(filter(None, cast("Sequence[str]", contents)))
    parts: list[Body] = []
    for content in contents:
        for part in [text_part(content)] if isinstance(content, str) else cast("list[Body]", content):
            if parts and parts[-1]["type"] == part["type"] == "text":
                parts[-1] = text_part(f"{parts[-1]['text']}\n{part['text']}")
            else:
                parts.append(part)
    return [part for part in parts if part.get("text", " ")]


def text_part(text: Any) -> Body:
    return {"type": "text", "text": text}
