"""Queue subscriptions whose queue is the topic itself: its records are leased and settled one by one."""
