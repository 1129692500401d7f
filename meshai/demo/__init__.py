"""The program on a virtual mesh: the scripted conversation of ``meshai demo`` and the phone of ``meshai chat``."""
