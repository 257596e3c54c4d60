"""Semantic recall: text index, vector index, fusion, retriever, embeddings."""
