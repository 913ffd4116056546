"""Tables: one reader that yields blocks of rows, and one encoder from columns to features."""
