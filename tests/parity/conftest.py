from tests.support.parity.adapters import show_drivers

show_drivers()
