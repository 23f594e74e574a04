"""What channels are asked to do, one module per class of methods, and the table of them all."""
