"""The server as a Ray Serve application: replicas on the nodes of a cluster, requests routed by prompt."""

from camelid.ray.build import Autoscaling, app

__all__ = ["Autoscaling", "app"]
