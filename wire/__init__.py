"""The protocol between agents and control: messages, their encoding, and the streams that carry them."""
