package lab

// AsksWrongly is asksWrongly, for the tests of all experiments.
func (e *Experiment) AsksWrongly() string { return e.asksWrongly() }
