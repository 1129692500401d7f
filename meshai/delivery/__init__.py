"""From answer to acknowledged packets: plain text, parts, outbox, sender, airtime governor (DESIGN §3)."""
