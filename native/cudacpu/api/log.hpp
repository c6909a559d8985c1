// Lines that say why: for the user, and for the cuLogs* functions. What does not live here: errors' names (errors.cpp).
#pragma once
#include <string>

#include "api/api.hpp"

namespace cudacpu {

// Keeps the line, hands it to registered callbacks and writes it where CUDA_LOG_FILE says (a path, `stdout`, `stderr`),
// to stderr without it. Takes no lock while it calls back.
void log_line(CUlogLevel level, const std::string& line);

}  // namespace cudacpu
