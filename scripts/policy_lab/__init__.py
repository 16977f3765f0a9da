"""A laboratory for the policy: recorded evidence of drafters, replayed under any costs."""
