"""Tables: readers that yield blocks of rows, and an encoder from columns to features."""
