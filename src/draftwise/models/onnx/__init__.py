"""Decoders on ONNX Runtime: conversion, the 8-bit recipes, and the engine."""
