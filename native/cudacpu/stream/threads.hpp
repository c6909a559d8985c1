// The library's own threads. What does not live here: what they do.
#pragma once
#include <functional>

namespace cudacpu {

// Starts a thread that ends with the process at the latest, and takes no signals but those its own faults raise: the
// others are for the program's threads. False where the system has no more. The name has at most 15 characters.
bool start_thread(const char* name, std::function<void()> body);

}  // namespace cudacpu
