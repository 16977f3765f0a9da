"""The text of files that are not text alone: PDFs and notebooks, in processes of their own."""
