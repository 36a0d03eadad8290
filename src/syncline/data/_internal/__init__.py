"""Private names of `ray.data._internal` that connectors of other projects use: `util`."""
