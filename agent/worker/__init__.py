"""The device worker: a child process that owns the driver library, so that its hangs and crashes stay there."""
