"""Links: rules (loss, delay, rate, queue, state) and schedules, per message or per packet. No torch."""
