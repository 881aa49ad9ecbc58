"""Named bytes in a folder or a bucket, which several hosts share."""
