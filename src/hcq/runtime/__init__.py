"""What every device is: registry, buffer, allocator, compiler, cache, compiled device, copy, counters."""
