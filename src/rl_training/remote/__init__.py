"""Object stores: data is read from them through a verified cache, and runs are mirrored in them."""
