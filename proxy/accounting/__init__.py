"""Record bytes by topic and rack, and the formulas of their cost."""
