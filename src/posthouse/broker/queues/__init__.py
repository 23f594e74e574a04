"""Queue subscriptions: messages handed out one by one under a lease, and settled one by one."""
