"""Who gets an answer, and what it is: router, throttle, responder, exchange."""
