"""Model serving: deployments behind HTTP and handles, with the API of Ray Serve."""
