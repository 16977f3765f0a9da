"""A tower and projector with which the demo sees synthetic pictures, and the target that knows them."""
