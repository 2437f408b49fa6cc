"""What tests on real servers share."""
