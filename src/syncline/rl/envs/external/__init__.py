"""External simulators, which drive their own loop and talk to an algorithm over a socket.

Files: `rllink` (messages), `message_server` (sockets of the algorithm), `policy_client` (client for
simulators), `policy_server_input` (the address in older programs), `external_env` (simulators in
the algorithm's process).
"""
