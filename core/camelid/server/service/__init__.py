"""Models as services: places, rendering, engines on threads of their own."""
