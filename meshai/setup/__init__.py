"""What ``meshai setup`` does: pure steps here, asking and showing in ``wizard`` and ``first_contact``."""
