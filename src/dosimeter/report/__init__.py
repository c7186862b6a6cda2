"""What pages are made of: shell, markup, wording, drawing. It knows no kind of audit."""
