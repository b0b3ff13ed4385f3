"""The trie: which observers does a value concern?"""
