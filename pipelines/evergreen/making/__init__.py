"""What the steps share that let a model write: its texts are candidates, and rules look at them."""
