"""Documents whose text is translated and whose structure, styles and markup stay."""
