"""ndcheck against axolotl's own validator: on labelled configs, and on fresh ones where axolotl can be installed."""
