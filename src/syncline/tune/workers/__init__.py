"""Where trials happen: `messages` (what is said between the controller and a trial's process),
`runner` (the actor that hosts a trainable), `pool` (the processes) and `places` (what they
hold).
"""
