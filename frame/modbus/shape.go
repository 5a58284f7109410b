package modbus

import "encoding/binary"

// The length of a frame follows from its function code and, in some frames, from counts in it
// (MODBUS Application Protocol Specification V1.1b3, section 6). A request and its answer have
// different forms, and nothing in a frame says which of both it is:
//
//	function             request                                    answer
//	1 2 3 4              8                                          5 + byte 2
//	5 6                  8                                          8
//	7                    4                                          5
//	8, sub-function 0    any even length from 6                     that of the request
//	8, sub-function 21   8                                          118, or 8 where it was asked to clear (operation 4)
//	8, others            8                                          8
//	11                   4                                          8
//	12 17                4                                          5 + byte 2
//	15 16                9 + byte 6                                 8
//	20 21                5 + byte 2                                 5 + byte 2
//	22                   10                                         10
//	23                   13 + byte 10                               5 + byte 2
//	24                   6                                          6 + byte 3
//	43, MEI type 14      7                                          10 + 2 for each object (byte 7) + what each object says
//	128 + any            –                                          5
//	128 + 43             –                                          5, or 6 with the MEI type
//
// Sub-function 21 of diagnostics gets, or clears, the statistics of Modbus Plus (Modicon Modbus
// Protocol Reference Guide, PI-MBUS-300, chapter 3). Function 128 is an exception, too: some
// devices answer so what they could not read at all.
//
// What other MEI types of function 43 carry, the specification does not say: that of type 13,
// CANopen, is in CiA 309-2. Such frames are found between borders, as those of unknown functions.

// form says how long a frame is: fixed bytes and, where count is not 0, as many as the byte at that
// place says, or, with objects, as many objects.
type form struct {
	fixed, count int
	objects      bool
}

// shape is the form of a function's request and that of its answer.
type shape struct{ request, answer form }

var shapes = func() (all [128]*shape) {
	size := func(fixed int) form { return form{fixed: fixed} }
	counted := func(fixed, count int) form { return form{fixed: fixed, count: count} }
	for _, fc := range []byte{1, 2, 3, 4} {
		all[fc] = &shape{size(8), counted(5, 2)}
	}
	for _, fc := range []byte{5, 6, 8} {
		all[fc] = &shape{size(8), size(8)}
	}
	all[7] = &shape{size(4), size(5)}
	all[11] = &shape{size(4), size(8)}
	all[12] = &shape{size(4), counted(5, 2)}
	all[15] = &shape{counted(9, 6), size(8)}
	all[16] = all[15]
	all[17] = all[12]
	all[20] = &shape{counted(5, 2), counted(5, 2)}
	all[21] = all[20]
	all[22] = &shape{size(10), size(10)}
	all[23] = &shape{counted(13, 10), counted(5, 2)}
	all[24] = &shape{size(6), counted(6, 3)}
	all[transport] = &shape{size(7), form{fixed: 10, count: 7, objects: true}}
	return all
}()

// ofPlus is the shape of a question for the statistics of Modbus Plus: 54 words behind their size.
var ofPlus = &shape{form{fixed: 8}, form{fixed: 118}}

// Functions with forms below them, and what is below.
const (
	diagnostics    = 8
	echo           = 0 // sub-function: the answer is the request, of any length
	plusStatistics = 21
	clearPlus      = 4 // operation of plusStatistics
	transport      = 43
	canOpen        = 13 // MEI type
	identification = 14 // MEI type
)

// shapeOf is the shape of the frame at the front of b by its function code; nil where that does not
// say it.
func shapeOf(b []byte) *shape {
	s := shapes[b[1]&0x7F]
	switch {
	case b[1] == diagnostics && echoes(b):
		return nil
	case b[1] == diagnostics && getsPlus(b):
		return ofPlus
	case b[1] == transport && len(b) > 2 && b[2] != identification:
		return nil
	}
	return s
}

// echoes reports whether b begins a diagnostic whose answer is the request.
func echoes(b []byte) bool {
	return b[1] == diagnostics && len(b) >= 4 && binary.BigEndian.Uint16(b[2:]) == echo
}

// getsPlus reports whether b begins a question for the statistics of Modbus Plus, or its answer.
func getsPlus(b []byte) bool {
	return len(b) >= likely && binary.BigEndian.Uint16(b[2:]) == plusStatistics &&
		binary.BigEndian.Uint16(b[4:]) != clearPlus
}

// An exception is its code, and what every frame has. Some devices name the MEI type, too, in one
// of function 43.
const (
	exceptionSize    = 5
	maxExceptionCode = 11
)

// exception is the size of the exception at the front of b; 0 if there is none. It is known from
// three bytes on.
func exception(b []byte) int {
	switch code := b[2]; {
	case b[0] == 0: // to all units: none answers
		return 0
	case b[1] == 0x80|transport && (code == canOpen || code == identification):
		return exceptionSize + 1
	case code == 0 || code > maxExceptionCode:
		return 0
	}
	return exceptionSize
}

// length is that of the frame at the front of b; 0: more bytes must come before it is known.
func (f form) length(b []byte) int {
	switch {
	case f.count == 0:
		return f.fixed
	case len(b) <= f.count:
		return 0
	case !f.objects:
		return f.fixed + int(b[f.count])
	}
	at := f.count + 1 // of an object: its number, its length, and as many bytes
	for range b[f.count] {
		if at > MaxSize {
			break // longer than may be, however it goes on
		}
		if len(b) <= at+1 {
			return 0
		}
		at += 2 + int(b[at+1])
	}
	return at + f.fixed - f.count - 1
}

// likely is how many bytes must be there before asks can say something about them.
const likely = 6

// asks reports whether b is likely to be a request: its counts are in the range that the function
// has, and agree.
func asks(b []byte) bool {
	word := func(at int) int { return int(binary.BigEndian.Uint16(b[at:])) }
	within := func(n, most int) bool { return 1 <= n && n <= most }
	switch b[1] {
	case 1, 2:
		return within(word(4), 2000)
	case 3, 4:
		return within(word(4), 125)
	case 15:
		return within(word(4), 1968) && int(b[6]) == (word(4)+7)/8
	case 16:
		return within(word(4), 123) && int(b[6]) == 2*word(4)
	case 23:
		return within(word(4), 125) && within(word(8), 121) && int(b[10]) == 2*word(8)
	case transport:
		return within(int(b[3]), 4)
	}
	return true
}

// answers reports whether b is likely to be an answer to any request.
func answers(b []byte) bool {
	switch b[1] {
	case 1, 2, 17, 20, 21:
		return b[2] > 0
	case 3, 4, 23:
		return b[2] > 0 && b[2]%2 == 0
	case 12: // a status, two counts, and at most 64 events
		return 6 <= b[2] && b[2] <= 70
	case 24: // a count of at most 31 registers, and those
		return b[2] == 0 && 2 <= b[3] && b[3] <= 64 && b[3]%2 == 0 && (len(b) < likely || b[4] == 0 && b[5] == b[3]/2-1)
	case transport: // the conformity level, and whether more follows
		return asks(b) && 1 <= b[4]&0x7F && b[4]&0x7F <= 3 && (b[5] == 0 || b[5] == 0xFF)
	}
	return true
}

// question is the last request on the bus. The zero value is none.
type question struct {
	unit, function byte
	body           [4]byte // what stands behind the function
	size           int     // of the answer, if the request says it; else 0
	sum            uint16  // the CRC
}

// ask is the question that a request puts.
func ask(b []byte) question {
	if b[0] == 0 { // to all units: none answers
		return question{}
	}
	q := question{unit: b[0], function: b[1], sum: sum(b)}
	copy(q.body[:], b[2:])
	count := int(binary.BigEndian.Uint16(b[len(b)-4:]))
	switch b[1] {
	case 1, 2:
		q.size = 5 + (count+7)/8
	case 3, 4:
		q.size = 5 + 2*count
	case 23:
		q.size = 5 + 2*int(binary.BigEndian.Uint16(b[4:]))
	case diagnostics:
		q.size = len(b)
		if f := shapeOf(b); f != nil {
			q.size = f.answer.fixed
		}
	}
	return q
}

// unknown is a length that cannot be told before more bytes have come.
const unknown = 0

// lengths lists the lengths that the frame at the front of b may have, the most likely first. None
// means that the function code says nothing about it.
//
// What was asked decides between a request and an answer: an answer has the length that was asked
// for, and where nothing was asked, a request comes next. A listener that does not know, because it
// came in the middle or hears one side only, takes the longer form first: the shorter one can be
// the front of the longer one, for the CRC of a frame whose last byte is 0 is right without it,
// too.
func (d *Decoder) lengths(b []byte) (all [2]int, n int) {
	if len(b) < 2 {
		return all, 1
	}
	if b[1] >= 0x80 {
		if len(b) > 2 {
			all[0] = exception(b)
		}
		if all[0] == unknown && len(b) > 2 {
			return all, 0
		}
		return all, 1
	}
	if echoes(b) {
		return d.echoed(b)
	}
	f := shapeOf(b)
	if f == nil {
		return all, 0
	}
	request, answer := f.request.length(b), f.answer.length(b)
	if f.request == f.answer {
		return [2]int{request}, 1
	}
	requestFirst, answerFirst := [2]int{request, answer}, [2]int{answer, request}
	if b[0] == 0 { // to all units: none answers
		return [2]int{request}, 1
	}
	if b[1] == transport {
		return d.identified(b, request, answer)
	}
	if b[1] == 15 || b[1] == 16 {
		return d.written(b, requestFirst)
	}
	if d.asked.unit == b[0] && d.asked.function == b[1] && (d.asked.size == unknown || answer == d.asked.size) {
		switch long := f.request.fixed > likely; {
		case long && len(b) < likely:
			return [2]int{unknown, answer}, 2
		// else it may be asked again
		case !long && (answer == unknown || answers(b)), long && [4]byte(b[2:likely]) != d.asked.body:
			return answerFirst, 2
		}
	}
	switch {
	case (b[1] == 12 || b[1] == 17) && len(b) >= MinSize && whole(b[:MinSize]): // a request has nothing but its CRC
		return requestFirst, 2
	case request == unknown, answer == unknown, f.request.fixed > likely && len(b) < likely:
		return [2]int{unknown, max(request, answer)}, 2
	case asks(b) != answers(b):
		if answers(b) {
			return answerFirst, 2
		}
	case !d.follows && answer > request:
		return answerFirst, 2
	}
	return requestFirst, 2
}

// echoed lists the lengths of a diagnostic whose answer is the request: that of the request, or
// with one word, as is usual.
func (d *Decoder) echoed(b []byte) (all [2]int, n int) {
	const one = 8
	switch asked := d.asked; {
	case asked.unit != b[0] || asked.function != b[1]:
		return [2]int{one}, 1
	case len(b) < likely:
		return all, 1
	case [4]byte(b[2:likely]) != asked.body:
		return [2]int{one}, 1
	}
	return [2]int{d.asked.size, one}, 2
}

// written lists the lengths of a frame that writes several coils or registers, or answers that. The
// count of bytes in a request agrees with how much is written; in an answer a byte of the CRC is at
// its place, which agrees by chance. What names what was just asked for is the answer, if its CRC
// says so, too: behind it the next frame may look like the rest of a request.
func (d *Decoder) written(b []byte, requestFirst [2]int) (all [2]int, n int) {
	request, answer := requestFirst[0], requestFirst[1]
	asked := d.asked.unit == b[0] && d.asked.function == b[1] &&
		len(b) >= likely && d.asked.body == [4]byte(b[2:likely])
	if request == unknown || asked || !asks(b) {
		return [2]int{answer, request}, 2
	}
	return requestFirst, 2
}

// identified lists the lengths of a frame that asks for the identification of a device, or gives
// it. The request is the front of no answer but by chance.
func (d *Decoder) identified(b []byte, request, answer int) (all [2]int, n int) {
	asked := d.asked.unit == b[0] && d.asked.function == b[1]
	switch {
	case len(b) < likely:
		return all, 1
	case !asks(b):
		return all, 0
	case !answers(b):
		return [2]int{request}, 1
	case asked && [4]byte(b[2:likely]) != d.asked.body:
		return [2]int{answer, request}, 2
	}
	return [2]int{request, answer}, 2
}
