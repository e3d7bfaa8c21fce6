from tests.parity.adapters import show_drivers

show_drivers()
