"""Object stores that speak S3: buckets, presigned requests, and the embedded store of one host."""
