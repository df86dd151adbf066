"""What a node should be, by its model, and whether it is: findings of holding a snapshot against expectations."""
