"""Opening the drafters that compute: draft models and heads. The drafter registry names them."""
