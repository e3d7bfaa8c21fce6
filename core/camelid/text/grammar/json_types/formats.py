"""String formats as regexes, each within the format's own specification.

Some regexes allow less than the specification: no leap seconds, no quotes or comments in e-mail addresses, at
most seven labels in a host name, web addresses by name or IPv4 only. An unknown format is refused, since an
unchecked text would look valid.
"""

from __future__ import annotations

from functools import cache

from camelid.text.grammar.dfa import Dfa, dfa_of
from camelid.text.grammar.regex import rules_of_regex


def compressed_ipv6() -> list[str]:
    """IPv6 addresses in which `::` stands for one or more groups of zeros (RFC 4291, 2.2)."""
    left = ["", *(":".join([GROUP] * n) for n in range(1, 8))]
    right = ["", *(f"(?:{GROUP}(?::{GROUP}){{0,{most - 1}}})?" for most in range(1, 8))]
    return [f"{left[n]}::{right[7 - n]}" for n in range(8)]


YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
BY_FOUR = "(?:0[48]|[2468][048]|[13579][26])"
LEAP_YEAR = f"(?:[0-9]{{2}}{BY_FOUR}|{BY_FOUR}00)"
DAYS = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
DATE = f"(?:{YEAR}-{DAYS}|{LEAP_YEAR}-02-29)"
TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
N = "[0-9]{1,9}"
CLOCK_PERIOD = f"T(?:{N}H(?:{N}M(?:{N}S)?)?|{N}M(?:{N}S)?|{N}S)"
DATE_PERIOD = f"(?:{N}Y(?:{N}M(?:{N}D)?)?|{N}M(?:{N}D)?|{N}D)"
BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
GROUP = "[0-9a-fA-F]{1,4}"
LABEL = "[a-zA-Z](?:[a-zA-Z0-9-]{0,29}[a-zA-Z0-9])?"
HOST = f"{LABEL}(?:\\.{LABEL}){{0,6}}"
ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
PATH_CHARACTER = "(?:[a-zA-Z0-9_.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
QUERY = f"(?:{PATH_CHARACTER}|[/?])*"
HEX = "[0-9a-fA-F]"
# Format -> regex of the whole text.
FORMATS = {
    "date": DATE,
    "time": TIME,
    "date-time": f"{DATE}T{TIME}",  # RFC 3339; durations follow its appendix A
    "duration": f"P(?:{DATE_PERIOD}(?:{CLOCK_PERIOD})?|{CLOCK_PERIOD}|{N}W)",
    "email": f"{ATOM}(?:\\.{ATOM})*@{HOST}",  # RFC 5321
    "hostname": HOST,  # RFC 1123
    "ipv4": f"(?:{BYTE}\\.){{3}}{BYTE}",
    "ipv6": "|".join([f"(?:{GROUP}:){{7}}{GROUP}", *compressed_ipv6()]),
    "uri": f"[a-zA-Z][a-zA-Z0-9+.-]*://{HOST}(?::[0-9]{{1,5}})?"  # RFC 3986
    f"(?:/{PATH_CHARACTER}*)*(?:\\?{QUERY})?(?:#{QUERY})?",
    "uuid": f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}",  # RFC 4122
    "json-pointer": "(?:/(?:[^/~]|~[01])*)*",  # RFC 6901
}
# Formats of OpenAPI: bounds of numbers, and names that allow any value of their type.
NUMBER_FORMATS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
NAMES_ONLY = frozenset({"float", "double", "password"})
KNOWN_FORMATS = sorted({*FORMATS, *NUMBER_FORMATS, *NAMES_ONLY})


@cache
def format_dfa(name: str) -> Dfa:
    """The automaton of one of FORMATS."""
    return dfa_of(rules_of_regex(FORMATS[name]).rules["root"])
