//! A scripted model server for tests and the demo: four protocols, answers by plan.
