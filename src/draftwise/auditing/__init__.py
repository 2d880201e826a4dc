"""A check of one's own pair: is speculative decoding of this target with this drafter lossless?"""
