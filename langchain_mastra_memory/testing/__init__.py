"""For tests of memory: conformance suite, scripted chat model, frozen clock, prompt checks."""
