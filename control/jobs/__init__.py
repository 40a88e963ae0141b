"""Jobs as callers see them: submitted, waited for, read, retried, and reported to webhooks."""
