"""Half messages: durable, and invisible until their producer has decided. Producers that do not are asked
back."""
