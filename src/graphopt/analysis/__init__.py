"""What can be known of a graph without running it: types, symbolic shapes, constant values, purity."""
